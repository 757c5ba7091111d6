locals {
  hosts = merge(
    module.first_cluster.hosts,
    module.second_cluster.hosts,
    module.first_etcd.hosts,
    module.second_etcd.hosts,
  )
  machines = concat(
    module.first_cluster.instance_types,
    module.second_cluster.instance_types,
    module.first_etcd.instance_types,
    module.second_etcd.instance_types,
  )
  hours_per_month = 730
  hourly          = [for m in local.machines : m.spot ? lookup(var.prices.spot_hourly, m.type, null) : lookup(var.prices.hourly, m.type, null)]
  instances_hour  = sum([for price in local.hourly : price == null ? 0 : price])
  transfer_month  = var.transfer_gb_per_month * var.prices.transfer_gb
}

output "inventory" {
  description = "An ansible inventory: `terraform output -json inventory > inventory.json`."
  value = {
    all = {
      vars = { prfaas_mtu_bytes = module.interconnect.mtu_bytes }
      children = {
        for role in distinct([for host in values(local.hosts) : host.prfaas_role]) :
        role => { hosts = { for name, host in local.hosts : name => host if host.prfaas_role == role } }
      }
    }
  }
}

output "cost_usd" {
  description = "An estimate from `prices`: instances and what crosses the regions; no disks, addresses, taxes. `without_price` are instance types that count nothing."
  value = {
    instances_per_hour  = local.instances_hour
    instances_per_month = local.instances_hour * local.hours_per_month
    transfer_per_month  = local.transfer_month
    per_month           = local.instances_hour * local.hours_per_month + local.transfer_month
    without_price       = distinct([for index, m in local.machines : m.type if local.hourly[index] == null])
  }
}

output "hosts" {
  description = "Members by name, as the inventory wants them."
  value = {
    for name in keys(local.members) : name => {
      ansible_host   = aws_instance.member[name].public_ip
      prfaas_address = aws_instance.member[name].private_ip
      prfaas_region  = var.region.name
      prfaas_role    = "etcd"
    }
  }
}

output "instance_types" {
  description = "The members' types: for the cost estimate."
  value       = [for _ in keys(local.members) : { type = var.instance_type, spot = false }]
}

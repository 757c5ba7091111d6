output "hosts" {
  description = "Instances by node name, as the inventory wants them."
  value = {
    for name, node in local.nodes : name => {
      ansible_host   = try(aws_eip.efa[name].public_ip, aws_instance.node[name].public_ip)
      prfaas_address = aws_instance.node[name].private_ip
      prfaas_region  = var.region.name
      prfaas_role    = node.role
    }
  }
}

output "instance_types" {
  description = "How many instances of each type, and whether they are spot: for the cost estimate."
  value = [
    for node in values(local.nodes) : { type = node.instance_type, spot = var.spot && node.is_engine }
  ]
}

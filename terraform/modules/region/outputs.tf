output "name" {
  description = "The region's name in PrfaaS."
  value       = var.name
}

output "cidr" {
  description = "Addresses of the region."
  value       = var.cidr
}

output "vpc_id" {
  description = "The network."
  value       = aws_vpc.this.id
}

output "route_table_id" {
  description = "Where routes to other regions go."
  value       = aws_route_table.this.id
}

output "subnet_ids" {
  description = "Subnets in the order of zones."
  value       = [for zone in var.zones : aws_subnet.zone[zone].id]
}

output "security_group_id" {
  description = "The group of all nodes."
  value       = aws_security_group.nodes.id
}

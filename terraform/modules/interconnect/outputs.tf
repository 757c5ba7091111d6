output "kind" {
  description = "How the regions are connected."
  value       = var.kind
}

output "mtu_bytes" {
  description = "Largest packet between the regions; the inventory carries it to the nodes."
  value       = var.mtu_bytes
}

locals {
  prefix     = var.name == "default" ? "prfaas-" : "prfaas-${var.name}-"
  namespaces = { for region in var.regions : region => "${local.prefix}${region}" }
}

output "api_url" {
  description = "Base of the OpenAI API."
  value       = "http://127.0.0.1:${var.port}/v1"
  depends_on  = [terraform_data.deployment]
}

output "namespaces" {
  description = "Network namespace of each region: `ip netns exec NAMESPACE ...`."
  value       = local.namespaces
  depends_on  = [terraform_data.deployment]
}

output "cost_usd" {
  description = "An estimate, in the form of the one of envs/aws."
  value       = { instances_per_hour = 0, instances_per_month = 0, transfer_per_month = 0, per_month = 0, without_price = [] }
}

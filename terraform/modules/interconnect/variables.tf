variable "kind" {
  description = "How the two regions are connected: peering (point to point, cheaper) or transit-gateway (when more networks join)."
  type        = string
  default     = "peering"
  validation {
    condition     = contains(["peering", "transit-gateway"], var.kind)
    error_message = "kind: peering or transit-gateway."
  }
}

variable "first" {
  description = "Outputs of the first region's module."
  type        = object({ name = string, cidr = string, vpc_id = string, route_table_id = string, subnet_ids = list(string) })
}

variable "second" {
  description = "Outputs of the second region's module."
  type        = object({ name = string, cidr = string, vpc_id = string, route_table_id = string, subnet_ids = list(string) })
}

variable "second_aws_region" {
  description = "AWS's name of the second region, as in eu-central-1."
  type        = string
  validation {
    condition     = can(regex("^[a-z]{2}(-[a-z]+)+-[0-9]$", var.second_aws_region))
    error_message = "second_aws_region: as in eu-central-1."
  }
}

variable "mtu_bytes" {
  description = "Largest packet that passes between the regions. Ask AWS's documentation of your connection before raising it: too large a value loses packets silently."
  type        = number
  default     = 1500
  validation {
    condition     = var.mtu_bytes >= 1280 && var.mtu_bytes <= 9001
    error_message = "mtu_bytes: 1280 to 9001."
  }
}

variable "tags" {
  description = "Tags of everything made here."
  type        = map(string)
  default     = {}
}

variable "first" {
  description = "The region that prefills long prompts: its name in PrfaaS, where it is, its addresses, its machines."
  type = object({
    name       = string
    aws_region = string
    cidr       = string
    zones      = list(string)
    ami        = string
    roles      = map(object({ count = number, instance_type = string }))
    efa        = optional(set(string), [])
    etcd       = optional(number, 0)
  })
}

variable "second" {
  description = "The region that decodes: with the gateways, and prefills of its own."
  type = object({
    name       = string
    aws_region = string
    cidr       = string
    zones      = list(string)
    ami        = string
    roles      = map(object({ count = number, instance_type = string }))
    efa        = optional(set(string), [])
    etcd       = optional(number, 3)
  })
  validation {
    condition     = alltrue([for role in ["prefill", "decode", "gateway"] : contains(keys(var.second.roles), role)])
    error_message = "second: needs the roles prefill, decode and gateway."
  }
  validation {
    condition     = var.second.name != var.first.name && var.second.cidr != var.first.cidr
    error_message = "second: another name than the first's, and other addresses."
  }
  validation {
    condition     = contains([1, 3, 5], var.first.etcd + var.second.etcd)
    error_message = "etcd: one, three or five members in all."
  }
}

variable "key_name" {
  description = "Name of an SSH key pair that exists in both AWS regions."
  type        = string
}

variable "admin_cidrs" {
  description = "Networks that may reach SSH and the gateway's API."
  type        = list(string)
}

variable "interconnect" {
  description = "peering or transit-gateway."
  type        = string
  default     = "peering"
}

variable "mtu_bytes" {
  description = "Largest packet between the regions."
  type        = number
  default     = 1500
}

variable "spot" {
  description = "Whether engines run on spot instances."
  type        = bool
  default     = false
}

variable "prices" {
  description = "For the cost estimate, in USD: an hour of each instance type, and a GB between the regions. Look them up: they differ by region and time."
  type = object({
    hourly      = map(number)
    spot_hourly = optional(map(number), {})
    transfer_gb = number
  })
  validation {
    condition     = alltrue([for price in concat(values(var.prices.hourly), values(var.prices.spot_hourly), [var.prices.transfer_gb]) : price >= 0])
    error_message = "prices: not below 0."
  }
}

variable "transfer_gb_per_month" {
  description = "GB of KV cache that cross the regions in a month: `prfaasctl plan` tells the bandwidth of a site."
  type        = number
  validation {
    condition     = var.transfer_gb_per_month >= 0
    error_message = "transfer_gb_per_month: not below 0."
  }
}

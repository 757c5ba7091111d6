variable "name" {
  description = "The region's name in PrfaaS, as in `--regions`; also the prefix of all names here."
  type        = string
  validation {
    condition     = can(regex("^[a-z0-9]([a-z0-9-]{0,10}[a-z0-9])?$", var.name)) && var.name != "wan"
    error_message = "name: 1 to 12 lowercase letters, digits and inner dashes; not wan."
  }
}

variable "cidr" {
  description = "Addresses of the region; must not overlap with another region's."
  type        = string
  validation {
    condition     = can(cidrhost(var.cidr, 0)) && try(tonumber(split("/", var.cidr)[1]) >= 16 && tonumber(split("/", var.cidr)[1]) <= 24, false)
    error_message = "cidr: an IPv4 network of /16 to /24, as in 10.10.0.0/16."
  }
}

variable "zones" {
  description = "Availability zones that get a subnet each; GPU instances stand in the first."
  type        = list(string)
  validation {
    condition     = length(var.zones) >= 1 && length(var.zones) <= 4 && length(distinct(var.zones)) == length(var.zones)
    error_message = "zones: one to four different availability zones."
  }
}

variable "admin_cidrs" {
  description = "Networks that may reach SSH and the gateway's API."
  type        = list(string)
  validation {
    condition     = length(var.admin_cidrs) > 0 && alltrue([for c in var.admin_cidrs : can(cidrhost(c, 0))]) && !contains(var.admin_cidrs, "0.0.0.0/0")
    error_message = "admin_cidrs: at least one network, and not the whole Internet."
  }
}

variable "peer_cidrs" {
  description = "Networks of the other regions, which may reach `peer_ports` only."
  type        = list(string)
  default     = []
  validation {
    condition     = alltrue([for c in var.peer_cidrs : can(cidrhost(c, 0))])
    error_message = "peer_cidrs: IPv4 networks."
  }
}

variable "peer_ports" {
  description = "TCP port ranges open to other regions, by what listens there. All of it is inside mutual TLS (docs/security.md)."
  type        = map(object({ from = number, to = number }))
  default = {
    engines   = { from = 30000, to = 30499 }
    bootstrap = { from = 30500, to = 30999 }
    agents    = { from = 31000, to = 31499 }
    lanes     = { from = 32768, to = 60999 }
    etcd      = { from = 2379, to = 2380 }
  }
  validation {
    condition     = alltrue([for r in values(var.peer_ports) : r.from >= 1024 && r.to <= 65535 && r.from <= r.to])
    error_message = "peer_ports: ranges within 1024 to 65535, from not above to."
  }
}

variable "api_port" {
  description = "Port of the gateway's API."
  type        = number
  default     = 8080
  validation {
    condition     = var.api_port >= 1 && var.api_port <= 65535
    error_message = "api_port: 1 to 65535."
  }
}

variable "tags" {
  description = "Tags of everything made here."
  type        = map(string)
  default     = {}
}

variable "name" {
  description = "Name of the deployment."
  type        = string
  default     = "terraform"
  validation {
    condition     = can(regex("^[a-z0-9]([a-z0-9-]{0,22}[a-z0-9])?$", var.name))
    error_message = "name: 1 to 24 lowercase letters, digits and inner dashes."
  }
}

variable "regions" {
  description = "The region that prefills long prompts, and the one that decodes."
  type        = list(string)
  default     = ["a", "b"]
  validation {
    condition     = length(var.regions) == 2 && length(distinct(var.regions)) == 2 && alltrue([for region in var.regions : can(regex("^[a-z0-9]([a-z0-9-]{0,10}[a-z0-9])?$", region)) && region != "wan"])
    error_message = "regions: two different names of 1 to 12 lowercase letters, digits and inner dashes; not wan."
  }
}

variable "topology" {
  description = "A topology file (docs/topology.md) with the regions and their links; empty: one link as below."
  type        = string
  default     = ""
  validation {
    condition     = var.topology == "" ? true : fileexists(var.topology)
    error_message = "topology: no such file."
  }
}

variable "link_rate" {
  description = "Configured rate of the link."
  type        = string
  default     = "100gbit"
  validation {
    condition     = can(regex("^[0-9]+(\\.[0-9]+)?[kmgt]?bit$", var.link_rate))
    error_message = "link_rate: as in 10gbit."
  }
}

variable "link_rtt" {
  description = "Round trip of the link."
  type        = string
  default     = "20ms"
  validation {
    condition     = can(regex("^[0-9]+(\\.[0-9]+)?(us|ms|s)$", var.link_rtt))
    error_message = "link_rtt: as in 20ms."
  }
}

variable "engine" {
  description = "sglang, or twin: profiles in the place of compute."
  type        = string
  default     = "twin"
  validation {
    condition     = contains(["sglang", "twin"], var.engine)
    error_message = "engine: sglang or twin."
  }
}

variable "instances" {
  description = "Prefills of the first region; prefills and decodes of the second."
  type        = list(number)
  default     = [1, 1, 1]
  validation {
    condition     = length(var.instances) == 3 && alltrue([for count in var.instances : count >= 1 && count <= 64])
    error_message = "instances: three numbers of 1 to 64."
  }
}

variable "port" {
  description = "Port of the API on 127.0.0.1."
  type        = number
  default     = 8080
  validation {
    condition     = var.port >= 1 && var.port <= 65535
    error_message = "port: 1 to 65535."
  }
}

variable "state_dir" {
  description = "Where deployments keep state."
  type        = string
  default     = "/var/lib/prfaas"
  validation {
    condition     = startswith(var.state_dir, "/")
    error_message = "state_dir: an absolute path."
  }
}

variable "prfaasctl" {
  description = "The program."
  type        = string
  default     = "prfaasctl"
}

variable "region" {
  description = "Outputs of the region's module."
  type        = object({ name = string, subnet_ids = list(string), security_group_id = string })
}

variable "roles" {
  description = "Instances by role: prefill, decode, gateway. Gateways need no GPU."
  type        = map(object({ count = number, instance_type = string }))
  validation {
    condition     = length(var.roles) > 0 && alltrue([for role in keys(var.roles) : contains(["prefill", "decode", "gateway"], role)])
    error_message = "roles: prefill, decode and gateway."
  }
  validation {
    condition     = alltrue([for r in values(var.roles) : r.count >= 1 && r.count <= 64 && floor(r.count) == r.count])
    error_message = "roles: each with a count of 1 to 64."
  }
}

variable "ami" {
  description = "The machine image: Debian or Ubuntu with NVIDIA's driver."
  type        = string
  validation {
    condition     = can(regex("^ami-[0-9a-f]{8,17}$", var.ami))
    error_message = "ami: as in ami-0123456789abcdef0."
  }
}

variable "key_name" {
  description = "Name of the SSH key pair."
  type        = string
}

variable "spot" {
  description = "Whether engines run on spot instances: cheaper, and taken away within two minutes. Gateways never do."
  type        = bool
  default     = false
}

variable "efa" {
  description = "Roles whose instances get an Elastic Fabric Adapter for transfers inside the region; the instance type must have one."
  type        = set(string)
  default     = []
  validation {
    condition     = alltrue([for role in var.efa : contains(["prefill", "decode"], role)])
    error_message = "efa: prefill, decode."
  }
}

variable "root_gib" {
  description = "Size of each root volume: the model lies there."
  type        = number
  default     = 500
  validation {
    condition     = var.root_gib >= 30 && var.root_gib <= 16384
    error_message = "root_gib: 30 to 16384."
  }
}

variable "tags" {
  description = "Tags of everything made here."
  type        = map(string)
  default     = {}
}

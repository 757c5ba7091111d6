variable "region" {
  description = "Outputs of the region's module."
  type        = object({ name = string, subnet_ids = list(string), security_group_id = string })
}

variable "members" {
  description = "How many members stand in this region."
  type        = number
  validation {
    condition     = var.members >= 0 && var.members <= 5 && floor(var.members) == var.members
    error_message = "members: 0 to 5."
  }
}

variable "ami" {
  description = "The machine image of the region."
  type        = string
  validation {
    condition     = can(regex("^ami-[0-9a-f]{8,17}$", var.ami))
    error_message = "ami: as in ami-0123456789abcdef0."
  }
}

variable "instance_type" {
  description = "Type of the members: etcd wants a fast disk more than a fast CPU."
  type        = string
  default     = "m7i.large"
}

variable "key_name" {
  description = "Name of the SSH key pair."
  type        = string
}

variable "tags" {
  description = "Tags of everything made here."
  type        = map(string)
  default     = {}
}

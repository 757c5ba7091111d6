# Members of the etcd cluster in one region, spread over its zones. The cluster itself is made by ansible.
locals {
  members = { for index in range(var.members) : "${var.region.name}-etcd-${index}" => index }
}

resource "aws_instance" "member" {
  for_each                    = local.members
  ami                         = var.ami
  instance_type               = var.instance_type
  key_name                    = var.key_name
  subnet_id                   = var.region.subnet_ids[each.value % length(var.region.subnet_ids)]
  vpc_security_group_ids      = [var.region.security_group_id]
  associate_public_ip_address = true
  monitoring                  = true
  ebs_optimized               = true

  metadata_options {
    http_endpoint = "enabled"
    http_tokens   = "required"
  }

  root_block_device {
    volume_size = 50
    volume_type = "gp3"
    iops        = 6000
    encrypted   = true
  }

  tags = merge(var.tags, { Name = each.key, "prfaas:role" = "etcd", "prfaas:region" = var.region.name })
}

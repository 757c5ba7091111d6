# The instances of one region. Engines stand close together, in one placement group.
locals {
  nodes = merge([
    for role, wanted in var.roles : {
      for number in range(wanted.count) : "${var.region.name}-${role}-${number}" => {
        role          = role
        instance_type = wanted.instance_type
        is_engine     = role != "gateway"
      }
    }
  ]...)
}

resource "aws_placement_group" "engines" {
  name     = "prfaas-${var.region.name}"
  strategy = "cluster"
  tags     = var.tags
}

# An Elastic Fabric Adapter is an interface made before its instance, which then gets no public address by itself.
resource "aws_network_interface" "efa" {
  for_each        = { for name, node in local.nodes : name => node if contains(var.efa, node.role) }
  subnet_id       = var.region.subnet_ids[0]
  security_groups = [var.region.security_group_id]
  interface_type  = "efa"
  description     = each.key
  tags            = merge(var.tags, { Name = each.key })
}

resource "aws_eip" "efa" {
  for_each          = aws_network_interface.efa
  domain            = "vpc"
  network_interface = each.value.id
  tags              = merge(var.tags, { Name = each.key })
  depends_on        = [aws_instance.node]
}

resource "aws_instance" "node" {
  for_each        = local.nodes
  ami             = var.ami
  instance_type   = each.value.instance_type
  key_name        = var.key_name
  placement_group = each.value.is_engine ? aws_placement_group.engines.name : null
  monitoring      = true
  ebs_optimized   = true

  subnet_id                   = contains(var.efa, each.value.role) ? null : var.region.subnet_ids[0]
  vpc_security_group_ids      = contains(var.efa, each.value.role) ? null : [var.region.security_group_id]
  associate_public_ip_address = contains(var.efa, each.value.role) ? null : true

  dynamic "primary_network_interface" {
    for_each = contains(var.efa, each.value.role) ? [aws_network_interface.efa[each.key].id] : []
    content {
      network_interface_id = primary_network_interface.value
    }
  }

  metadata_options {
    http_endpoint = "enabled"
    http_tokens   = "required"
  }

  root_block_device {
    volume_size = var.root_gib
    volume_type = "gp3"
    encrypted   = true
  }

  dynamic "instance_market_options" {
    for_each = var.spot && each.value.is_engine ? ["spot"] : []
    content {
      market_type = instance_market_options.value
    }
  }

  tags = merge(var.tags, { Name = each.key, "prfaas:role" = each.value.role, "prfaas:region" = var.region.name })
}

# One region: a network with a subnet per zone, a way out, and who may reach what.
locals {
  tags  = merge(var.tags, { "prfaas:region" = var.name })
  peers = { for pair in setproduct(keys(var.peer_ports), var.peer_cidrs) : "${pair[0]} ${pair[1]}" => { ports = var.peer_ports[pair[0]], cidr = pair[1] } }
}

resource "aws_vpc" "this" {
  cidr_block           = var.cidr
  enable_dns_support   = true
  enable_dns_hostnames = true
  tags                 = merge(local.tags, { Name = "prfaas-${var.name}" })
}

resource "aws_internet_gateway" "this" {
  vpc_id = aws_vpc.this.id
  tags   = merge(local.tags, { Name = "prfaas-${var.name}" })
}

resource "aws_subnet" "zone" {
  for_each          = { for index, zone in var.zones : zone => index }
  vpc_id            = aws_vpc.this.id
  availability_zone = each.key
  cidr_block        = cidrsubnet(var.cidr, 2, each.value)
  tags              = merge(local.tags, { Name = "prfaas-${var.name}-${each.key}" })
}

resource "aws_route_table" "this" {
  vpc_id = aws_vpc.this.id
  tags   = merge(local.tags, { Name = "prfaas-${var.name}" })
}

resource "aws_route" "out" {
  route_table_id         = aws_route_table.this.id
  destination_cidr_block = "0.0.0.0/0"
  gateway_id             = aws_internet_gateway.this.id
}

resource "aws_route_table_association" "zone" {
  for_each       = aws_subnet.zone
  subnet_id      = each.value.id
  route_table_id = aws_route_table.this.id
}

resource "aws_security_group" "nodes" {
  name        = "prfaas-${var.name}"
  description = "Nodes of PrfaaS region ${var.name}"
  vpc_id      = aws_vpc.this.id
  tags        = merge(local.tags, { Name = "prfaas-${var.name}" })
}

resource "aws_vpc_security_group_egress_rule" "all" {
  security_group_id = aws_security_group.nodes.id
  description       = "Packages, models, other regions"
  cidr_ipv4         = "0.0.0.0/0"
  ip_protocol       = "-1"
}

# EFA needs the group itself as the source and the target of everything.
resource "aws_vpc_security_group_ingress_rule" "own" {
  security_group_id            = aws_security_group.nodes.id
  description                  = "Nodes of this region"
  referenced_security_group_id = aws_security_group.nodes.id
  ip_protocol                  = "-1"
}

resource "aws_vpc_security_group_egress_rule" "own" {
  security_group_id            = aws_security_group.nodes.id
  description                  = "Nodes of this region"
  referenced_security_group_id = aws_security_group.nodes.id
  ip_protocol                  = "-1"
}

resource "aws_vpc_security_group_ingress_rule" "ssh" {
  for_each          = toset(var.admin_cidrs)
  security_group_id = aws_security_group.nodes.id
  description       = "SSH for administrators"
  cidr_ipv4         = each.key
  ip_protocol       = "tcp"
  from_port         = 22
  to_port           = 22
}

resource "aws_vpc_security_group_ingress_rule" "api" {
  for_each          = toset(var.admin_cidrs)
  security_group_id = aws_security_group.nodes.id
  description       = "The gateway's API"
  cidr_ipv4         = each.key
  ip_protocol       = "tcp"
  from_port         = var.api_port
  to_port           = var.api_port
}

resource "aws_vpc_security_group_ingress_rule" "peer" {
  for_each          = local.peers
  security_group_id = aws_security_group.nodes.id
  description       = "Other regions: ${split(" ", each.key)[0]}"
  cidr_ipv4         = each.value.cidr
  ip_protocol       = "tcp"
  from_port         = each.value.ports.from
  to_port           = each.value.ports.to
}

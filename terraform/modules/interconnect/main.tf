# The link between two regions, and the routes over it.
locals {
  peering = var.kind == "peering" ? 1 : 0
  transit = var.kind == "transit-gateway" ? 1 : 0
  tags    = merge(var.tags, { Name = "prfaas-${var.first.name}-${var.second.name}" })
}

resource "aws_vpc_peering_connection" "this" {
  count       = local.peering
  provider    = aws.first
  vpc_id      = var.first.vpc_id
  peer_vpc_id = var.second.vpc_id
  peer_region = var.second_aws_region
  tags        = local.tags
}

resource "aws_vpc_peering_connection_accepter" "this" {
  count                     = local.peering
  provider                  = aws.second
  vpc_peering_connection_id = aws_vpc_peering_connection.this[0].id
  auto_accept               = true
  tags                      = local.tags
}

resource "aws_ec2_transit_gateway" "first" {
  count       = local.transit
  provider    = aws.first
  description = "PrfaaS ${var.first.name}"
  tags        = local.tags
}

resource "aws_ec2_transit_gateway" "second" {
  count       = local.transit
  provider    = aws.second
  description = "PrfaaS ${var.second.name}"
  tags        = local.tags
}

resource "aws_ec2_transit_gateway_vpc_attachment" "first" {
  count              = local.transit
  provider           = aws.first
  transit_gateway_id = aws_ec2_transit_gateway.first[0].id
  vpc_id             = var.first.vpc_id
  subnet_ids         = var.first.subnet_ids
  tags               = local.tags
}

resource "aws_ec2_transit_gateway_vpc_attachment" "second" {
  count              = local.transit
  provider           = aws.second
  transit_gateway_id = aws_ec2_transit_gateway.second[0].id
  vpc_id             = var.second.vpc_id
  subnet_ids         = var.second.subnet_ids
  tags               = local.tags
}

resource "aws_ec2_transit_gateway_peering_attachment" "this" {
  count                   = local.transit
  provider                = aws.first
  transit_gateway_id      = aws_ec2_transit_gateway.first[0].id
  peer_transit_gateway_id = aws_ec2_transit_gateway.second[0].id
  peer_region             = var.second_aws_region
  tags                    = local.tags
}

resource "aws_ec2_transit_gateway_peering_attachment_accepter" "this" {
  count                         = local.transit
  provider                      = aws.second
  transit_gateway_attachment_id = aws_ec2_transit_gateway_peering_attachment.this[0].id
  tags                          = local.tags
}

resource "aws_ec2_transit_gateway_route" "first" {
  count                          = local.transit
  provider                       = aws.first
  destination_cidr_block         = var.second.cidr
  transit_gateway_attachment_id  = aws_ec2_transit_gateway_peering_attachment.this[0].id
  transit_gateway_route_table_id = aws_ec2_transit_gateway.first[0].association_default_route_table_id
  depends_on                     = [aws_ec2_transit_gateway_peering_attachment_accepter.this]
}

resource "aws_ec2_transit_gateway_route" "second" {
  count                          = local.transit
  provider                       = aws.second
  destination_cidr_block         = var.first.cidr
  transit_gateway_attachment_id  = aws_ec2_transit_gateway_peering_attachment_accepter.this[0].id
  transit_gateway_route_table_id = aws_ec2_transit_gateway.second[0].association_default_route_table_id
}

resource "aws_route" "first" {
  provider                  = aws.first
  route_table_id            = var.first.route_table_id
  destination_cidr_block    = var.second.cidr
  vpc_peering_connection_id = one(aws_vpc_peering_connection_accepter.this[*].vpc_peering_connection_id)
  transit_gateway_id        = one(aws_ec2_transit_gateway_vpc_attachment.first[*].transit_gateway_id)
}

resource "aws_route" "second" {
  provider                  = aws.second
  route_table_id            = var.second.route_table_id
  destination_cidr_block    = var.first.cidr
  vpc_peering_connection_id = one(aws_vpc_peering_connection_accepter.this[*].vpc_peering_connection_id)
  transit_gateway_id        = one(aws_ec2_transit_gateway_vpc_attachment.second[*].transit_gateway_id)
}

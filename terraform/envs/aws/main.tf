# Two AWS regions with machines, and the link between them. Ansible does the rest, from `inventory`.
locals {
  tags = { "prfaas:deployment" = "${var.first.name}-${var.second.name}" }
}

module "first" {
  source      = "../../modules/region"
  providers   = { aws = aws.first }
  name        = var.first.name
  cidr        = var.first.cidr
  zones       = var.first.zones
  admin_cidrs = var.admin_cidrs
  peer_cidrs  = [var.second.cidr]
  tags        = local.tags
}

module "second" {
  source      = "../../modules/region"
  providers   = { aws = aws.second }
  name        = var.second.name
  cidr        = var.second.cidr
  zones       = var.second.zones
  admin_cidrs = var.admin_cidrs
  peer_cidrs  = [var.first.cidr]
  tags        = local.tags
}

module "interconnect" {
  source            = "../../modules/interconnect"
  providers         = { aws.first = aws.first, aws.second = aws.second }
  kind              = var.interconnect
  mtu_bytes         = var.mtu_bytes
  first             = module.first
  second            = module.second
  second_aws_region = var.second.aws_region
  tags              = local.tags
}

module "first_cluster" {
  source    = "../../modules/gpu_cluster"
  providers = { aws = aws.first }
  region    = module.first
  roles     = var.first.roles
  efa       = var.first.efa
  ami       = var.first.ami
  key_name  = var.key_name
  spot      = var.spot
  tags      = local.tags
}

module "second_cluster" {
  source    = "../../modules/gpu_cluster"
  providers = { aws = aws.second }
  region    = module.second
  roles     = var.second.roles
  efa       = var.second.efa
  ami       = var.second.ami
  key_name  = var.key_name
  spot      = var.spot
  tags      = local.tags
}

module "first_etcd" {
  source    = "../../modules/etcd"
  providers = { aws = aws.first }
  region    = module.first
  members   = var.first.etcd
  ami       = var.first.ami
  key_name  = var.key_name
  tags      = local.tags
}

module "second_etcd" {
  source    = "../../modules/etcd"
  providers = { aws = aws.second }
  region    = module.second
  members   = var.second.etcd
  ami       = var.second.ami
  key_name  = var.key_name
  tags      = local.tags
}

terraform {
  required_version = ">= 1.7"
  required_providers {
    aws = {
      source  = "hashicorp/aws"
      version = ">= 6.0, < 7.0"
    }
  }
}

provider "aws" {
  alias  = "first"
  region = var.first.aws_region
}

provider "aws" {
  alias  = "second"
  region = var.second.aws_region
}

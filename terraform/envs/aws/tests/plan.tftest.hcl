# Nothing is made: the provider is a mock.
mock_provider "aws" {
  alias = "first"
}

mock_provider "aws" {
  alias = "second"
}

variables {
  key_name    = "ops"
  admin_cidrs = ["198.51.100.0/24"]
  first = {
    name       = "us"
    aws_region = "us-east-2"
    cidr       = "10.10.0.0/16"
    zones      = ["us-east-2a"]
    ami        = "ami-0123456789abcdef0"
    roles      = { prefill = { count = 4, instance_type = "p5e.48xlarge" } }
    efa        = ["prefill"]
  }
  second = {
    name       = "eu"
    aws_region = "eu-central-1"
    cidr       = "10.20.0.0/16"
    zones      = ["eu-central-1a", "eu-central-1b", "eu-central-1c"]
    ami        = "ami-0123456789abcdef1"
    roles = {
      prefill = { count = 3, instance_type = "g6e.48xlarge" }
      decode  = { count = 5, instance_type = "g6e.48xlarge" }
      gateway = { count = 2, instance_type = "m7i.2xlarge" }
    }
  }
  prices = {
    hourly      = { "p5e.48xlarge" = 40, "g6e.48xlarge" = 20, "m7i.2xlarge" = 0.5, "m7i.large" = 0.1 }
    spot_hourly = { "p5e.48xlarge" = 10 }
    transfer_gb = 0.02
  }
  transfer_gb_per_month = 1000
}

run "machines_are_in_the_inventory_and_in_the_cost" {
  command = plan
  variables {
    spot         = true
    interconnect = "transit-gateway"
  }
  assert {
    condition     = { for role, group in output.inventory.all.children : role => length(group.hosts) } == { decode = 5, etcd = 3, gateway = 2, prefill = 7 }
    error_message = "hosts by role"
  }
  assert {
    condition     = output.inventory.all.children.prefill.hosts["us-prefill-3"].prfaas_region == "us"
    error_message = "region of us-prefill-3"
  }
  assert {
    condition     = output.inventory.all.vars.prfaas_mtu_bytes == 1500
    error_message = "MTU"
  }
  # Engines cost what spot instances do, gateways and etcd do not; what has no price is named.
  assert {
    condition     = abs(output.cost_usd.instances_per_hour - (4 * 10 + 2 * 0.5 + 3 * 0.1)) < 0.001
    error_message = "instances: ${output.cost_usd.instances_per_hour}"
  }
  assert {
    condition     = output.cost_usd.without_price == tolist(["g6e.48xlarge"])
    error_message = "without price: ${jsonencode(output.cost_usd.without_price)}"
  }
  assert {
    condition     = output.cost_usd.transfer_per_month == 20
    error_message = "transfer: ${output.cost_usd.transfer_per_month}"
  }
}

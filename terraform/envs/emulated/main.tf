# Two emulated datacenters on this machine. All that is done here is to call prfaasctl, without a shell.
locals {
  links = var.topology == "" ? ["--link-rate", var.link_rate, "--link-rtt", var.link_rtt] : ["--topology", abspath(var.topology)]
  place = ["--name", var.name, "--state-dir"]
  deploy = concat(
    [var.prfaasctl, "deploy", "--regions", join(",", var.regions), "--engine", var.engine],
    ["--instances", join(",", var.instances), "--port", tostring(var.port)],
    local.links,
    local.place,
  )
}

resource "terraform_data" "deployment" {
  input = {
    prfaasctl  = var.prfaasctl
    name       = var.name
    state_dir  = var.state_dir
    namespaces = local.namespaces
  }
  # Other options are another deployment: the old one goes first.
  triggers_replace = [local.deploy, var.state_dir, var.topology == "" ? "" : filesha256(var.topology)]

  provisioner "local-exec" {
    interpreter = local.deploy
    command     = var.state_dir
  }

  provisioner "local-exec" {
    when        = destroy
    interpreter = [self.input.prfaasctl, "destroy", "--name", self.input.name, "--state-dir"]
    command     = self.input.state_dir
  }
}

# A deployment that was destroyed behind Terraform's back shows here; repair it with
# terraform apply -replace=terraform_data.deployment
# The names come from the resource, so that nobody looks for them before it is made.
check "namespaces" {
  assert {
    condition     = alltrue([for name in values(terraform_data.deployment.output.namespaces) : fileexists("/run/netns/${name}")])
    error_message = "the deployment is gone; apply with -replace=terraform_data.deployment"
  }
}

# Plans only: nothing is deployed, so nobody knows yet whether the namespaces will be there.
run "the_command_has_all_options" {
  command         = plan
  expect_failures = [check.namespaces]
  assert {
    condition     = terraform_data.deployment.triggers_replace[0] == ["prfaasctl", "deploy", "--regions", "a,b", "--engine", "twin", "--instances", "1,1,1", "--port", "8080", "--link-rate", "100gbit", "--link-rtt", "20ms", "--name", "terraform", "--state-dir"]
    error_message = jsonencode(terraform_data.deployment.triggers_replace[0])
  }
  assert {
    condition     = output.namespaces == { a = "prfaas-terraform-a", b = "prfaas-terraform-b" }
    error_message = "namespaces"
  }
}

run "the_default_deployment_has_short_names" {
  command         = plan
  expect_failures = [check.namespaces]
  variables {
    name    = "default"
    regions = ["us", "eu"]
  }
  assert {
    condition     = output.namespaces == { us = "prfaas-us", eu = "prfaas-eu" }
    error_message = "namespaces"
  }
}

run "wrong_inputs_are_refused" {
  command = plan
  variables {
    name      = "Bad_Name"
    regions   = ["a", "a"]
    topology  = "/no/such/file.toml"
    link_rate = "fast"
    link_rtt  = "20"
    engine    = "vllm"
    instances = [1, 0, 1]
    port      = 0
    state_dir = "here"
  }
  expect_failures = [
    var.name, var.regions, var.topology, var.link_rate, var.link_rtt, var.engine, var.instances, var.port, var.state_dir,
  ]
}

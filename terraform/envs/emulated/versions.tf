terraform {
  required_version = ">= 1.7"
  # The state dies with the namespaces when the machine is started again. Another place:
  # terraform init -backend-config=path=FILE
  backend "local" {
    path = "/run/prfaas/emulated.tfstate"
  }
}

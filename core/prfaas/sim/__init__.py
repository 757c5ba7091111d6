"""A simulator in virtual time: the deployment's stages around the very policy that gateways run."""

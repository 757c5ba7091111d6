"""Pure core of PrfaaS."""

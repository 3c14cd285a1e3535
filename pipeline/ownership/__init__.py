"""Who owns which offsets partition: decisions, leases, fencing, and what operators do."""

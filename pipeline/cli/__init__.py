"""The command `group-coordinator`: `main`, and a module for each group of verbs.

A verb reads its options, calls one function of another package and prints the result. It imports
that package when it runs, so that no verb waits for the libraries of another.
"""

"""The command `group-coordinator`: one module for each verb, or group of verbs, and `main`.

A verb reads its options, calls one function of another package and prints the result. It imports
that package when it runs, so that no verb waits for libraries of another one. Nothing imports from
here.
"""

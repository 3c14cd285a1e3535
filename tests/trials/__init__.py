"""Trials: checks of the coordinator's promises in runs that are too long for a test.

Each package is one trial with one function to call. `__main__` has its command, and a short run of
it is a test. `results` has the reports of long runs. `page` renders README.md from them and from
`found`, the bugs that the trials found.
"""

"""The product, broken in named places: a test must find each of them.

`table/*.toml` has the places. `mutant` reads them, `copied` makes the checkout that is broken, and
`trial` breaks it in one place after the other and runs the tests that must fail.
"""

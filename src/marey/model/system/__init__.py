"""The interpreter and the machine: native module, garbage, atomic files, secrets, failures."""

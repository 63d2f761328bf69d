"""The pages, one module each. `PAGES` in `dashboard/mount.py` lists them."""

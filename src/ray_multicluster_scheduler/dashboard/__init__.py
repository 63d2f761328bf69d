"""The pages of a server for people: all clusters, all jobs, every decision, and what may be done about them.

Each page calls `service` for the visitor who looks at it, as every other way in does. `mount.add_dashboard`
puts the pages on the server's application.
"""

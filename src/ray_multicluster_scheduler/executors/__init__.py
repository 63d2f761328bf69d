"""How attempts of jobs are carried out on a cluster: one file for each way, and others as plug-ins."""

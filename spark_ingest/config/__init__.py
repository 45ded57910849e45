"""The job file: the settings of a job and of its topics, their checks, and the page that lists them."""

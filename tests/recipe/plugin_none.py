"""A module that is no plug-in: it has no class of one."""

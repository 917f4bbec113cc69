"""Where many independent predictions run: processes of this machine."""

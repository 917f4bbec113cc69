"""What machines print of themselves: topology, devices, NICs and node lists, read into a cluster."""

"""Hardware: devices, links, topologies, kernel and collective times, power, price."""

"""The ground floor: errors, strict loading, cache, files, quantities, records, sources; knows no hardware."""

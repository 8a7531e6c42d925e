"""Where other software meets equable; each part needs its own optional dependency."""

"""What the three commands share: arguments, output, errors, signals."""

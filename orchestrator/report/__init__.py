"""What people see: tables, live progress, plain lines."""

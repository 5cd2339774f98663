"""What other projects read and write. Tables in the packages below load it by import path; none imports it."""

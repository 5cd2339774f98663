"""Formats and protocols of other projects. Tables in the packages below load them by import path; none imports them."""

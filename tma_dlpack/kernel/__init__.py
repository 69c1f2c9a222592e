"""run_kernel."""

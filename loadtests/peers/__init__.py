"""What Penstock is measured against, each as a process of its own."""

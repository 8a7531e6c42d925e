"""Speed and accuracy compared with other libraries."""

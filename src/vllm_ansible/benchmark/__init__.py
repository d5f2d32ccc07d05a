"""What is asked of served engines, how the answers are judged, and what a bring-up costs."""

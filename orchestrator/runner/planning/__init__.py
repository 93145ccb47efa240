"""Recipe to plan: units and their cost, budget and stopping rules; nothing is sent."""

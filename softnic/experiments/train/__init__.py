"""Trainings: how ranks that compute gradients exchange them, and what an iteration's time goes to.

Reading order: data; network, mlp, hdc, models; optimizer, replica; timeline, strategies, world; exchange.
"""

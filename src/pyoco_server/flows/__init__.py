"""Flows: conversion of what authors write (pyoco's objects, flow.yaml) into the graph that the core runs.

Start reading at ``model`` (what a flow is), then ``plan`` (how it becomes a graph). No user code is imported before
``binding``.
"""

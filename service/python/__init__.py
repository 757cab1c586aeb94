"""The Python API: what `import forerun` offers; each name is loaded when it is first used."""

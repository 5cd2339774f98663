while True:
    pass
# ModelNew

"""`moonferry check MODULE`: which rules of the exchange protocols hold for a Python library's arrays.

Nothing here needs Moonferry's extension: structs are read and made with ctypes, so that the check runs in any CPython.
"""
